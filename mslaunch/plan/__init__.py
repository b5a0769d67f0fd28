"""Which rank goes where: hostfiles and -H to nodes, nodes to a map.

Every room of this floor is pure: texts and records in, records out.  None opens a file, asks a resolver or a clock,
or reads the environment; what they need of the world comes in as an argument.
"""
