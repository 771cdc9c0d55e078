"""The tables of this paper: `python -m reproduce.mixcon TABLE --quick|--full`."""

from reproduce.running import main

if __name__ == "__main__":
    main("mixcon")
