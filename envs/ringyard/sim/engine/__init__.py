"""The compiled engine: jobs start, change and end; time passes from event to event."""
