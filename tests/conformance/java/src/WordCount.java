import java.util.Arrays;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Counts words with Kafka Streams, exactly once: {@code WordCount BOOTSTRAP APPLICATION FROM TO STATE-DIRECTORY PROTOCOL}.
 *
 * <p>Every count that a word reaches is one record of the target topic (nothing is cached), so that a count that was lost or
 * done twice can be seen there. Runs until it is killed.
 */
public final class WordCount {
    public static void main(String[] args) {
        Properties config = new Properties();
        config.putAll(Map.of(
                StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0],
                StreamsConfig.APPLICATION_ID_CONFIG, args[1],
                StreamsConfig.STATE_DIR_CONFIG, args[4],
                StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2,
                StreamsConfig.REPLICATION_FACTOR_CONFIG, "1",
                StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0",
                StreamsConfig.NUM_STREAM_THREADS_CONFIG, "2",
                StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "100"));
        config.putAll(Map.of(
                StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class,
                StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class,
                StreamsConfig.producerPrefix("transaction.timeout.ms"), "5000",
                StreamsConfig.GROUP_PROTOCOL_CONFIG, args[5],
                StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest",
                StreamsConfig.consumerPrefix("max.poll.records"), "50"));
        if (args[5].equals("classic")) { // the broker tells a Streams group
            config.put(StreamsConfig.consumerPrefix("session.timeout.ms"), "6000");
            config.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), "1000");
        }
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> lines = builder.stream(args[2]);
        lines.flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word)
                .count()
                .toStream()
                .to(args[3], Produced.with(Serdes.String(), Serdes.Long()));
        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.start();
    }
}
