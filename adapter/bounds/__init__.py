"""What bounds the replicas of an autoscaler by time: windows of schedules, and the minimum of a forecast."""
