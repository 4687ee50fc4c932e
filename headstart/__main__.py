"""`python -m headstart`: the command line, where the `headstart` command is not on the path."""

from headstart.cli import main

if __name__ == "__main__":
    main()
