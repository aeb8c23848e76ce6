"""Labelled data on disk: studies, label tables, splits and event files."""
