"""Counts and times of copying, as MirrorMaker names them and as ours."""
