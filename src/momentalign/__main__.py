"""``python -m momentalign`` is the command line."""

from momentalign.cli import main

if __name__ == "__main__":
    main()
