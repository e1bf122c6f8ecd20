import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Kafka Streams with exactly_once_v2, through repartition and changelog topics, killed in the middle. */
final class StreamsChecks {
    static final int WORDS = 20;
    static final int LINES = 1000;

    public static void wordsAreCountedOnceThroughKills(Cluster c) throws Exception {
        counted(c, true, "classic");
    }

    public static void wordsAreCountedOnceWithStateFromTheChangelog(Cluster c) throws Exception {
        counted(c, false, "classic");
    }

    public static void aStreamsGroupCountsOnceThroughKills(Cluster c) throws Exception {
        counted(c, true, "streams");
    }

    public static void aStreamsGroupCountsOnceWithStateFromTheChangelog(Cluster c) throws Exception {
        counted(c, false, "streams");
    }

    /** Kills the application twice with -9; it comes back with its state directory, or without and reads the changelog. */
    private static void counted(Cluster c, boolean keepState, String protocol) throws Exception {
        String from = c.topic(2);
        String to = c.topic(2);
        String application = Cluster.name("words");
        Map<String, Long> expected = write(c, from);
        long total = expected.values().stream().mapToLong(Long::longValue).sum();
        Map<String, Long> counts = new TreeMap<>();
        long seen = 0;
        try (var reader = reader(c, to)) {
            for (long goal : new long[] {total / 4, total / 2, total}) {
                Path state = Path.of(c.work, keepState ? application : Cluster.name(application));
                Process app = start(c, application, from, to, state, protocol);
                try {
                    seen = follow(reader, app, counts, seen, goal);
                } finally {
                    app.destroyForcibly().waitFor(); // SIGKILL
                }
            }
            Cluster.equal(expected, counts, "counts");
            for (int i = 0; i < 10; i++) {
                Cluster.check(reader.poll(Duration.ofMillis(100)).isEmpty(), "a count came after the last one");
            }
        }
    }

    private static Map<String, Long> write(Cluster c, String topic) throws Exception {
        Map<String, Long> expected = new TreeMap<>();
        var producer = c.producer("linger.ms", "5");
        for (int i = 0; i < LINES; i++) {
            String first = "word" + i % WORDS;
            String second = "word" + i * 7 % WORDS;
            expected.merge(first, 1L, Long::sum);
            expected.merge(second, 1L, Long::sum);
            producer.send(new ProducerRecord<>(topic, i % 2, null, first + " " + second));
        }
        producer.close();
        return expected;
    }

    /** Reads counts until {@code goal} of them were seen; each must be one more than its word's last one. */
    private static long follow(
            KafkaConsumer<String, Long> reader, Process app, Map<String, Long> counts, long seen, long goal) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(90);
        while (seen < goal) {
            Cluster.check(app.isAlive(), "the application ended by itself");
            Cluster.check(System.nanoTime() < deadline, "no progress: " + seen + " of " + goal + " counts");
            for (var record : reader.poll(Duration.ofMillis(100))) {
                Cluster.equal(counts.merge(record.key(), 1L, Long::sum), record.value(), "next count of " + record.key());
                seen++;
            }
        }
        return seen;
    }

    private static KafkaConsumer<String, Long> reader(Cluster c, String topic) {
        Map<String, Object> config = Map.of(
                "bootstrap.servers", c.bootstrap, "isolation.level", "read_committed", "auto.offset.reset", "earliest");
        var reader = new KafkaConsumer<>(config, new StringDeserializer(), new LongDeserializer());
        reader.assign(List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1)));
        return reader;
    }

    private static Process start(
            Cluster c, String application, String from, String to, Path state, String protocol) throws Exception {
        Files.createDirectories(state);
        String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        var command = List.of(
                java, "-Xmx192M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true", "-cp", System.getProperty("java.class.path"), "WordCount",
                c.bootstrap, application, from, to, state.toString(), protocol);
        File log = Path.of(c.work, application + ".log").toFile();
        return new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.appendTo(log)).start();
    }
}
