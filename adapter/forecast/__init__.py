"""Forecasts of demand, which become minimums once replay has shown that they help."""
