"""Every hot path of fastseed beside the thing it replaces: see README.md."""
