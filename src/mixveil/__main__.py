"""`python -m mixveil`."""

from mixveil.cli.main import main

if __name__ == "__main__":
    main()
