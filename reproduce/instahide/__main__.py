"""The tables of this paper: `python -m reproduce.instahide TABLE --quick|--full`."""

from reproduce.running import main

if __name__ == "__main__":
    main("instahide")
