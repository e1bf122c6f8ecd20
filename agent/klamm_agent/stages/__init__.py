"""The stages that events pass, each by itself, and the documents at their end. Pure."""
