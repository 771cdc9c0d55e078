"""The tables of this paper: `python -m reproduce.singular TABLE --quick|--full`."""

from reproduce.running import main

if __name__ == "__main__":
    main("singular")
