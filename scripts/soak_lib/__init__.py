"""Many launches, long streams, many detached jobs: the parts of `scripts/soak`."""
