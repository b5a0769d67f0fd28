"""Floor 4, the agent: the one process per node that owns its ranks.  It knows its own node's plan and nothing else."""
