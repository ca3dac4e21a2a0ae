"""The verb `convert`: autoscalers of one kind from another, and schedules from those of other scalers."""
