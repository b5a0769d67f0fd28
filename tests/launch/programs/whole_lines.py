"""Imported by ranks that print: a line is one write, and nobody else's comes into it.

Python that is not buffered, as mslaunch asks for it, writes each word of print() by itself, and the end of the line.
"""

import sys

for stream in (sys.stdout, sys.stderr):
    stream.reconfigure(line_buffering=True, write_through=False)
