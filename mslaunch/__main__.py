"""`python -m mslaunch`: the command."""

from mslaunch.cli.main import main

if __name__ == "__main__":
    main()
