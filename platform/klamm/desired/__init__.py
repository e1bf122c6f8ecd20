"""The state that a cluster should have, as YAML: `klamm apply` and `klamm export`.

`state` says what there can be, `document` reads and writes it, `plan` finds the changes from one state to another. They
do no I/O. `reading` asks a cluster, a schema registry and a Connect worker for their state, `carrying` carries out a plan.
"""
