"""Floor 5, links: how to get a byte stream to an agent on a node.  It knows nodes and bytes, no frames."""
