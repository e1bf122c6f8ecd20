import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TransactionalIdNotFoundException;

/** Transactions as clients of 4.x use them (transaction version 2, KIP-890). */
final class TransactionChecks {
    public static void commitsAreSeenAndAbortsAreNot(Cluster c) throws Exception {
        String topic = c.topic(2);
        var producer = transactional(c, Cluster.name("txn"));
        var committed = reader(c, topic, 2, "read_committed");
        for (int round = 0; round < 6; round++) {
            producer.beginTransaction();
            for (int i = 0; i < 10; i++) {
                producer.send(new ProducerRecord<>(topic, i % 2, "k", round + "." + i));
            }
            producer.flush(); // an abort throws away what was not sent yet
            if (round % 2 == 0) {
                producer.commitTransaction();
            } else {
                producer.abortTransaction();
            }
        }
        var seen = new HashSet<>(Cluster.values(Cluster.take(committed, 30)));
        Cluster.check(seen.stream().noneMatch(v -> v.charAt(0) % 2 == 1), "an aborted record was seen: " + seen);
        Cluster.nothing(committed);
        Cluster.take(reader(c, topic, 2, "read_uncommitted"), 60);
    }

    public static void openTransactionsAreHeldBack(Cluster c) throws Exception {
        String topic = c.topic(1);
        var partition = new TopicPartition(topic, 0);
        var producer = transactional(c, Cluster.name("txn"));
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, 0, "k", "open")).get();
        c.producer().send(new ProducerRecord<>(topic, 0, "k", "plain")).get();
        var committed = reader(c, topic, 1, "read_committed");
        Cluster.nothing(committed);
        Cluster.equal(Map.of(partition, 0L), committed.endOffsets(List.of(partition)), "last stable offset");
        Cluster.equal(2L, AdminChecks.offset(c, partition, OffsetSpec.latest()), "log end");
        producer.commitTransaction();
        Cluster.equal(List.of("open", "plain"), Cluster.values(Cluster.take(committed, 2)), "after the commit");
        Cluster.equal(Map.of(partition, 3L), committed.endOffsets(List.of(partition)), "behind the marker");
    }

    public static void offsetsCommitWithTheTransaction(Cluster c) throws Exception {
        String topic = c.topic(1);
        c.fill(topic, 1, 10);
        String group = Cluster.name("group");
        var partition = new TopicPartition(topic, 0);
        var consumer = ConsumerChecks.member(c, "classic", group, topic);
        Cluster.take(consumer, 10);
        var producer = transactional(c, Cluster.name("txn"));
        producer.beginTransaction();
        producer.sendOffsetsToTransaction(Map.of(partition, new OffsetAndMetadata(4)), consumer.groupMetadata());
        producer.abortTransaction();
        Cluster.equal(null, consumer.committed(Set.of(partition)).get(partition), "after an abort");
        producer.beginTransaction();
        producer.sendOffsetsToTransaction(Map.of(partition, new OffsetAndMetadata(6)), consumer.groupMetadata());
        producer.commitTransaction();
        Cluster.equal(6L, consumer.committed(Set.of(partition)).get(partition).offset(), "after a commit");
    }

    public static void classicCopiesExactlyOnce(Cluster c) throws Exception {
        copies(c, "classic");
    }

    public static void consumerCopiesExactlyOnce(Cluster c) throws Exception {
        copies(c, "consumer");
    }

    /** Consume, transform, produce; every third transaction is aborted and done again, and the copier is replaced. */
    private static void copies(Cluster c, String protocol) throws Exception {
        String from = c.topic(2);
        String to = c.topic(2);
        String group = Cluster.name("group");
        c.fill(from, 2, 200);
        int copied = 0;
        int round = 0;
        while (copied < 200) {
            var consumer = ConsumerChecks.member(c, protocol, group, from, "max.poll.records", "15", "isolation.level", "read_committed");
            var producer = transactional(c, group + "-txn");
            for (int i = 0; i < 5 && copied < 200; ) {
                var records = consumer.poll(Duration.ofMillis(100));
                if (records.isEmpty()) {
                    continue;
                }
                i++;
                producer.beginTransaction();
                records.forEach(r -> producer.send(new ProducerRecord<>(to, r.partition(), r.key(), r.value())));
                producer.sendOffsetsToTransaction(records.nextOffsets(), consumer.groupMetadata());
                if (++round % 3 == 0) {
                    producer.abortTransaction();
                    break; // the next copier begins at what is committed
                }
                producer.commitTransaction();
                copied += records.count();
            }
            consumer.close();
            producer.close();
        }
        var target = reader(c, to, 2, "read_committed");
        Set<String> seen = new HashSet<>(Cluster.values(Cluster.take(target, 200)));
        Cluster.equal(200, seen.size(), "distinct records");
        Cluster.nothing(target);
    }

    public static void aSecondProducerFencesTheFirst(Cluster c) throws Exception {
        String topic = c.topic(1);
        String id = Cluster.name("txn");
        var first = transactional(c, id);
        first.beginTransaction();
        first.send(new ProducerRecord<>(topic, "lost")).get();
        var second = transactional(c, id);
        KafkaException fenced = Cluster.fails(KafkaException.class, () -> {
            first.send(new ProducerRecord<>(topic, "late")).get();
            first.commitTransaction();
            return null;
        });
        boolean named = fenced instanceof ProducerFencedException || fenced instanceof InvalidProducerEpochException
                || fenced.getCause() instanceof ProducerFencedException
                || fenced.getCause() instanceof InvalidProducerEpochException;
        Cluster.check(named, "the error says that it is fenced: " + fenced);
        second.beginTransaction();
        second.send(new ProducerRecord<>(topic, "kept")).get();
        second.commitTransaction();
        var committed = reader(c, topic, 1, "read_committed");
        Cluster.equal(List.of("kept"), Cluster.values(Cluster.take(committed, 1)), "what is committed");
        Cluster.nothing(committed);
    }

    public static void forgottenTransactionsAreAborted(Cluster c) throws Exception {
        String topic = c.topic(1);
        var producer = transactional(c, Cluster.name("txn"), "transaction.timeout.ms", "1000");
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, "forgotten")).get();
        c.producer().send(new ProducerRecord<>(topic, "plain")).get();
        var committed = reader(c, topic, 1, "read_committed");
        Cluster.equal(List.of("plain"), Cluster.values(Cluster.take(committed, 1)), "after the time-out");
        Cluster.fails(KafkaException.class, () -> {
            producer.send(new ProducerRecord<>(topic, "late")).get();
            producer.commitTransaction();
            return null;
        });
    }

    public static void transactionsAreDescribedAndListed(Cluster c) throws Exception {
        String topic = c.topic(1);
        var partition = new TopicPartition(topic, 0);
        String id = Cluster.name("txn");
        var producer = transactional(c, id);
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, 0, "k", "v")).get();
        var open = Cluster.get(c.admin().describeTransactions(List.of(id)).all()).get(id);
        Cluster.equal(TransactionState.ONGOING, open.state(), "state");
        Cluster.equal(Set.of(partition), open.topicPartitions(), "partitions");
        Cluster.check(open.transactionStartTimeMs().isPresent(), "a time of start");
        var listed = Cluster.get(c.admin().listTransactions(
                new ListTransactionsOptions().filterStates(Set.of(TransactionState.ONGOING))).all());
        Cluster.equal(1L, listed.stream().filter(t -> t.transactionalId().equals(id)).count(), "listings");
        var pattern = new ListTransactionsOptions().filterOnTransactionalIdPattern(id.substring(0, 8) + ".*");
        Cluster.check(Cluster.get(c.admin().listTransactions(pattern).all()).stream()
                .map(TransactionListing::transactionalId).toList().contains(id), "listed by a pattern");
        var active = Cluster.get(c.admin().describeProducers(List.of(partition)).all()).get(partition).activeProducers();
        Cluster.equal(1, active.size(), "active producers");
        Cluster.equal(open.producerId(), active.get(0).producerId(), "producer id");
        Cluster.equal(0L, active.get(0).currentTransactionStartOffset().orElse(-1), "first offset");
        producer.commitTransaction();
        Cluster.eventually("the end", () -> Cluster.get(c.admin().describeTransactions(List.of(id)).all()).get(id).state()
                == TransactionState.COMPLETE_COMMIT);
        Cluster.fails(TransactionalIdNotFoundException.class, () -> Cluster.get(
                c.admin().describeTransactions(List.of(Cluster.name("nobody"))).all()));
    }

    public static void adminEndsTransactions(Cluster c) throws Exception {
        String topic = c.topic(1);
        var partition = new TopicPartition(topic, 0);
        String id = Cluster.name("txn");
        var producer = transactional(c, id);
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, 0, "k", "hangs")).get();
        var active = Cluster.get(c.admin().describeProducers(List.of(partition)).all()).get(partition).activeProducers().get(0);
        Cluster.get(c.admin().abortTransaction(new AbortTransactionSpec(
                partition, active.producerId(), (short) active.producerEpoch(), active.coordinatorEpoch().orElse(0))).all());
        var committed = reader(c, topic, 1, "read_committed");
        Cluster.nothing(committed);
        Cluster.equal(Map.of(partition, 2L), committed.endOffsets(List.of(partition)), "behind the abort marker");
        Cluster.get(c.admin().fenceProducers(List.of(id)).all());
        Cluster.fails(KafkaException.class, () -> {
            producer.send(new ProducerRecord<>(topic, 0, "k", "late")).get();
            producer.commitTransaction();
            return null;
        });
    }

    public static void manyProducersAtOnce(Cluster c) throws Exception {
        String topic = c.topic(4);
        var threads = IntStream.range(0, 4).mapToObj(n -> new Thread(() -> {
            var producer = transactional(c, Cluster.name("txn"));
            for (int round = 0; round < 25; round++) {
                producer.beginTransaction();
                for (int i = 0; i < 8; i++) {
                    producer.send(new ProducerRecord<>(topic, i % 4, "k" + n, n + "." + round + "." + i + (round % 5 == 4 ? "x" : "")));
                }
                if (round % 5 == 4) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        })).toList();
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join(60_000);
        }
        var committed = reader(c, topic, 4, "read_committed");
        Set<String> seen = new HashSet<>(Cluster.values(Cluster.take(committed, 4 * 20 * 8)));
        Cluster.equal(4 * 20 * 8, seen.size(), "distinct records");
        Cluster.check(seen.stream().noneMatch(v -> v.endsWith("x")), "no aborted record");
        Cluster.nothing(committed);
    }

    private static KafkaProducer<String, String> transactional(Cluster c, String id, String... settings) {
        String[] all = new String[settings.length + 2];
        System.arraycopy(settings, 0, all, 2, settings.length);
        all[0] = "transactional.id";
        all[1] = id;
        var producer = c.producer(all);
        producer.initTransactions();
        return producer;
    }

    private static KafkaConsumer<String, String> reader(Cluster c, String topic, int partitions, String isolation) {
        var consumer = c.consumer("isolation.level", isolation);
        consumer.assign(IntStream.range(0, partitions).mapToObj(p -> new TopicPartition(topic, p)).toList());
        return consumer;
    }
}
