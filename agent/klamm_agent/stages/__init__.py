"""The single stages that events pass, and the documents that end them. Pure."""
