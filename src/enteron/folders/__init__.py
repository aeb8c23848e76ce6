"""Every file of a reading folder and of a model folder: names, schema, reading and writing."""
