"""Forecasts of demand, which become floors once replay has shown that they help."""
