"""The schedules of a cluster: their bounds for each autoscaler, and their status."""
