"""The client of the process of forecasts, and the queries for the demand of the past."""
