"""A REST proxy with Confluent's API, v2 and v3. It is an ordinary client of any cluster, and knows neither our broker nor Connect."""
