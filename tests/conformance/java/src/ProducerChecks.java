import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidTimestampException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.header.internals.RecordHeader;

/** What a producer sends is what a consumer reads, and what must be refused is. */
final class ProducerChecks {
    public static void everyCodecKeepsRecords(Cluster c) throws Exception {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            String topic = c.topic(1);
            var producer = c.producer("compression.type", codec, "linger.ms", "5");
            var header = new RecordHeader("h", new byte[] {1, 0, 2});
            for (int i = 0; i < 300; i++) {
                producer.send(new ProducerRecord<>(topic, 0, 1_700_000_000_000L + i, "k" + i, "v" + i, List.of(header)));
            }
            producer.flush();
            var taken = Cluster.take(reader(c, topic), 300);
            for (int i = 0; i < 300; i++) {
                ConsumerRecord<String, String> record = taken.get(i);
                Cluster.equal("k" + i + " v" + i, record.key() + " " + record.value(), codec);
                Cluster.equal(1_700_000_000_000L + i, record.timestamp(), codec + " timestamp");
                Cluster.equal(header, record.headers().lastHeader("h"), codec + " header");
            }
        }
    }

    public static void acknowledgementsNameOffsetsInOrder(Cluster c) throws Exception {
        for (String acks : List.of("0", "1", "all")) {
            String topic = c.topic(1);
            var producer = c.producer("acks", acks, "enable.idempotence", "all".equals(acks) ? "true" : "false");
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = 0; i < 500; i++) {
                sent.add(producer.send(new ProducerRecord<>(topic, "k", "v" + i)));
            }
            producer.flush();
            for (int i = 0; i < 500 && !"0".equals(acks); i++) {
                Cluster.equal((long) i, sent.get(i).get().offset(), "offset with acks=" + acks);
            }
            Cluster.equal("v499", Cluster.take(reader(c, topic), 500).get(499).value(), "last with acks=" + acks);
        }
    }

    public static void nullsAndEmptiesAreKept(Cluster c) throws Exception {
        String topic = c.topic(1);
        var producer = c.producer();
        producer.send(new ProducerRecord<>(topic, null, null)).get();
        producer.send(new ProducerRecord<>(topic, "", "")).get();
        var taken = Cluster.take(reader(c, topic), 2);
        Cluster.check(taken.get(0).key() == null && taken.get(0).value() == null, "nulls");
        Cluster.equal("|", taken.get(1).key() + "|" + taken.get(1).value(), "empties");
    }

    public static void tooLargeRecordsAreRefused(Cluster c) throws Exception {
        String topic = c.topic(1, Map.of("max.message.bytes", "1000"));
        var producer = c.producer();
        Cluster.fails(RecordTooLargeException.class, () -> producer.send(new ProducerRecord<>(topic, "x".repeat(5000))).get());
        producer.send(new ProducerRecord<>(topic, "small")).get();
        Cluster.equal("small", Cluster.take(reader(c, topic), 1).get(0).value(), "the one after it");
    }

    public static void timestampsFollowTheTopic(Cluster c) throws Exception {
        String append = c.topic(1, Map.of("message.timestamp.type", "LogAppendTime"));
        long before = System.currentTimeMillis();
        var metadata = c.producer().send(new ProducerRecord<>(append, 0, 1000L, "k", "v")).get();
        Cluster.check(metadata.timestamp() >= before - 1000, "the acknowledgement has the time of the append");
        var record = Cluster.take(reader(c, append), 1).get(0);
        Cluster.equal(metadata.timestamp(), record.timestamp(), "timestamp");
        Cluster.equal("LogAppendTime", record.timestampType().toString(), "type");
        String bounded = c.topic(1, Map.of("message.timestamp.before.max.ms", "1000"));
        var late = new ProducerRecord<>(bounded, 0, before - 100_000, "k", "v");
        Cluster.fails(InvalidTimestampException.class, () -> c.producer().send(late).get());
    }

    public static void theTopicsCodecWins(Cluster c) throws Exception {
        String topic = c.topic(1, Map.of("compression.type", "zstd"));
        var producer = c.producer("compression.type", "gzip", "linger.ms", "5");
        for (int i = 0; i < 100; i++) {
            producer.send(new ProducerRecord<>(topic, "k" + i, "v" + i));
        }
        producer.flush();
        Cluster.equal(100, Cluster.take(reader(c, topic), 100).size(), "records");
    }

    private static KafkaConsumer<String, String> reader(Cluster c, String topic) {
        var consumer = c.consumer();
        consumer.assign(List.of(new TopicPartition(topic, 0)));
        return consumer;
    }
}
