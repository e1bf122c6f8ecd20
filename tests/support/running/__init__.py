"""The run of the tests: the choices of `./dev test`, reruns of tests that met a race, and the slices of CI."""
