"""Schedules: floors and ceilings of replicas in windows of local time."""
