"""The verb `schedule`: the windows of a schedule as instants."""
