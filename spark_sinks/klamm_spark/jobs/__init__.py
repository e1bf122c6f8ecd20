"""Jobs that come with Klamm: modules of functions `(df, spark) -> DataFrame | dict[name, DataFrame]`.

A pipeline names one as `function = "klamm_spark.jobs.NAME:function"`. `df` is the input as `[source]`
describes it. Each output takes the frame that its `query` (or, without one, its `name`) names.
"""
