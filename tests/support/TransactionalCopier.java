import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Copies a topic to another one, exactly once: reads committed records, writes them and its offsets in transactions, of
 * which it aborts some and repeats them. Then a second producer of its id fences the first one.
 *
 * Arguments: bootstrap servers, source, target, number of records, group protocol. Prints `copied N aborted M fenced`.
 */
public final class TransactionalCopier {
    public static void main(String[] args) {
        int wanted = Integer.parseInt(args[3]);
        Random random = new Random(1);
        int aborted = 0;
        int copied = 0;
        try (KafkaProducer<String, String> producer = producer(args[0]);
                KafkaConsumer<String, String> consumer = consumer(args[0], args[4])) {
            producer.initTransactions();
            consumer.subscribe(List.of(args[1]));
            while (copied < wanted) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (ConsumerRecord<String, String> record : records) {
                    producer.send(new ProducerRecord<>(args[2], record.partition(), record.key(), record.value()));
                    offsets.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                if (random.nextInt(3) == 0) {
                    producer.flush();
                    producer.abortTransaction();
                    aborted++;
                    rewind(consumer);
                } else {
                    producer.commitTransaction();
                    copied += records.count();
                }
            }
            System.out.println("copied " + copied + " aborted " + aborted + " " + fencing(args[0], args[2], producer));
        }
    }

    /** Back to what is committed, as after an abort. */
    private static void rewind(KafkaConsumer<String, String> consumer) {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        for (TopicPartition partition : new ArrayList<>(consumer.assignment())) {
            OffsetAndMetadata offset = committed.get(partition);
            if (offset == null) {
                consumer.seekToBeginning(List.of(partition));
            } else {
                consumer.seek(partition, offset.offset());
            }
        }
    }

    private static String fencing(String servers, String topic, KafkaProducer<String, String> first) {
        first.beginTransaction();
        first.send(new ProducerRecord<>(topic, 0, "", "of a fenced producer"));
        first.flush();
        try (KafkaProducer<String, String> second = producer(servers)) {
            second.initTransactions();
            try {
                first.commitTransaction();
                return "not fenced";
            } catch (ProducerFencedException | InvalidProducerEpochException e) {
                return "fenced";
            }
        }
    }

    private static KafkaProducer<String, String> producer(String servers) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("transactional.id", "copier");
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private static KafkaConsumer<String, String> consumer(String servers, String protocol) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("group.id", "copier-" + protocol);
        settings.put("group.protocol", protocol);
        settings.put("isolation.level", "read_committed");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.poll.records", "37");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }
}
