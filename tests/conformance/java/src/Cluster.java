import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The broker under test, as one check sees it: clients that are closed with it, new names, and assertions. */
final class Cluster implements AutoCloseable {
    final String bootstrap;
    final String work;
    private final List<AutoCloseable> open = java.util.Collections.synchronizedList(new ArrayList<>());
    private Admin admin;

    Cluster(String bootstrap, String work) {
        this.bootstrap = bootstrap;
        this.work = work;
    }

    Admin admin() {
        if (admin == null) {
            admin = Admin.create(
                    Map.of("bootstrap.servers", bootstrap, "default.api.timeout.ms", "20000", "request.timeout.ms", "10000"));
            open.add(admin);
        }
        return admin;
    }

    /** A producer with idempotence; settings come in pairs. */
    KafkaProducer<String, String> producer(String... settings) {
        Map<String, Object> config = config(settings);
        config.putIfAbsent("delivery.timeout.ms", "20000");
        config.putIfAbsent("request.timeout.ms", "10000");
        config.putIfAbsent("max.block.ms", "20000");
        var made = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
        open.add(() -> made.close(Duration.ofSeconds(2)));
        return made;
    }

    KafkaConsumer<String, String> consumer(String... settings) {
        Map<String, Object> config = config(settings);
        config.putIfAbsent("auto.offset.reset", "earliest");
        config.putIfAbsent("enable.auto.commit", "false");
        var made = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
        open.add(() -> {
            made.wakeup();
            made.close(org.apache.kafka.clients.consumer.CloseOptions.timeout(Duration.ofSeconds(2)));
        });
        return made;
    }

    private Map<String, Object> config(String... settings) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        for (int i = 0; i < settings.length; i += 2) {
            config.put(settings[i], settings[i + 1]);
        }
        return config;
    }

    static String name(String what) {
        return what + "-" + UUID.randomUUID().toString().substring(0, 8);
    }

    String topic(int partitions) throws Exception {
        return topic(partitions, Map.of());
    }

    String topic(int partitions, Map<String, String> configs) throws Exception {
        String name = name("topic");
        get(admin().createTopics(List.of(new NewTopic(name, partitions, (short) 1).configs(configs))).all());
        return name;
    }

    /** Values {@code v0...} to the partitions in turn; waits for every acknowledgement. */
    void fill(String topic, int partitions, int count) throws Exception {
        var producer = producer();
        for (int i = 0; i < count; i++) {
            producer.send(new ProducerRecord<>(topic, i % partitions, "k" + i, "v" + i));
        }
        producer.flush();
        producer.close();
    }

    /** Polls until so many records are there; fails when they do not come, or when more than those come at once. */
    static List<ConsumerRecord<String, String>> take(KafkaConsumer<String, String> consumer, int count) {
        List<ConsumerRecord<String, String>> taken = new ArrayList<>();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
        while (taken.size() < count && System.nanoTime() < deadline) {
            consumer.poll(Duration.ofMillis(100)).forEach(taken::add);
        }
        equal(count, taken.size(), "records");
        return taken;
    }

    /** Polls for a moment and checks that nothing comes. */
    static void nothing(KafkaConsumer<String, String> consumer) {
        for (int i = 0; i < 5; i++) {
            var records = consumer.poll(Duration.ofMillis(100));
            check(records.isEmpty(), "nothing should come, but there is " + (records.isEmpty() ? "" : records.iterator().next()));
        }
    }

    static <T> T get(KafkaFuture<T> future) throws Exception {
        return future.get(30, TimeUnit.SECONDS);
    }

    /** The error of a future that must fail, of the expected kind. */
    static <T extends Throwable> T fails(Class<T> kind, Callable<?> call) throws Exception {
        try {
            call.call();
        } catch (Throwable thrown) {
            Throwable cause = thrown instanceof ExecutionException && thrown.getCause() != null ? thrown.getCause() : thrown;
            if (kind.isInstance(cause)) {
                return kind.cast(cause);
            }
            throw new AssertionError("expected " + kind.getSimpleName() + ", got " + cause, cause);
        }
        throw new AssertionError("expected " + kind.getSimpleName() + ", but it succeeded");
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    static void equal(Object expected, Object actual, String what) {
        check(Objects.equals(expected, actual), what + ": expected " + expected + ", got " + actual);
    }

    static void eventually(String what, Callable<Boolean> holds) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
        Throwable last = null;
        while (System.nanoTime() < deadline) {
            try {
                if (holds.call()) {
                    return;
                }
            } catch (Exception e) {
                last = e;
            }
            Thread.sleep(50);
        }
        throw new AssertionError("waited 30 s for " + what, last);
    }

    static List<String> values(Collection<ConsumerRecord<String, String>> records) {
        return records.stream().map(ConsumerRecord::value).toList();
    }

    @Override
    public void close() {
        for (int i = open.size() - 1; i >= 0; i--) {
            try {
                open.get(i).close();
            } catch (Exception e) {
                System.err.println("closing: " + e);
            }
        }
    }
}
