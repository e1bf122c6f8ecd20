"""The Kafka protocol as a library: messages and record batches (`wire`), and a small asyncio client (`client`)."""
