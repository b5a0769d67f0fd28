"""Floor 7, engines: others who start ranks in our place, an installed Open MPI for one.  It knows no
command line of ours.

A launch that names no engine never comes here.
"""
