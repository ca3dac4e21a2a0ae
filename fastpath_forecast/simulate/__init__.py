"""Simulation: what an autoscaler would have done under a recorded load, decided by the production code."""
