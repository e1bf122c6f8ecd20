"""The log agent: files, syslog and the journal to topics, with a spool on disk and a ledger of what was left out.

Four nouns mean "some lines", one for each step of their way:

- a *block* (`files.tracked.Block`) is whole lines as bytes: what one read brought of one file. Positions and
  acknowledgements count by blocks;
- *events* (`events.Events`) are the texts that framing made of a block or an input received, as columns;
  `stages.staged.StagedEvents` are the same while stages work on them;
- *records* (`events.Records`) are the record values that the stages of an input made of events;
- a *batch* (`delivery.batches.Batch`) is records of one topic as Kafka's encoded record batch: what is sent and spooled.

Three more words keep the accounts: an *origin* names a block, a *receipt* waits for a block's records, and a *share* says
how many records of a batch came from one block.
"""
