"""Forecasts of demand, which become minimums once replay has shown that they help, and the simulation for it.

The scaler runs `worker` as a process of its own. Nothing of the adapter imports this package.
"""
