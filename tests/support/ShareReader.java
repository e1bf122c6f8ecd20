import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Reads a topic as a member of a share group, and acknowledges records one by one.
 *
 * Arguments: bootstrap servers, group, topic, number of records to accept, and values to give back, separated by commas.
 * Prints `accepted VALUE` for each record that it accepted. Then it waits as a member for the end of its input, and leaves.
 */
public final class ShareReader {
    public static void main(String[] args) throws Exception {
        String group = args[1];
        int wanted = Integer.parseInt(args[3]);
        Set<String> givenBack = args.length > 4 ? Set.of(args[4].split(",")) : Set.of();
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("group.id", group);
        config.put("share.acknowledgement.mode", "explicit");
        if (!givenBack.isEmpty()) {
            beginAtTheFirst(config, group);
        }
        int accepted = 0;
        try (KafkaShareConsumer<String, String> consumer =
                new KafkaShareConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(args[2]));
            while (accepted < wanted) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    boolean take = !givenBack.contains(record.value()) && accepted < wanted;
                    consumer.acknowledge(record, take ? AcknowledgeType.ACCEPT : AcknowledgeType.RELEASE);
                    if (take) {
                        accepted++;
                        System.out.println("accepted " + record.value());
                    }
                }
                consumer.commitSync();
            }
            System.out.println("done");
            System.out.flush();
            System.in.readAllBytes();
        }
    }

    private static void beginAtTheFirst(Properties config, String group) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        ConfigEntry entry = new ConfigEntry("share.auto.offset.reset", "earliest");
        try (Admin admin = Admin.create(config)) {
            admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(entry, AlterConfigOp.OpType.SET)))).all().get();
        }
    }
}
