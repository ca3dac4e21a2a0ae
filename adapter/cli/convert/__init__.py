"""The verb `convert`: autoscalers of one kind for those of another, and schedules for those of other scalers."""
