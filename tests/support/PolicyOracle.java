import java.util.Map;
import org.apache.kafka.connect.mirror.DefaultReplicationPolicy;
import org.apache.kafka.connect.mirror.IdentityReplicationPolicy;
import org.apache.kafka.connect.mirror.ReplicationPolicy;

/** Prints what Kafka's replication policies say of topics: arguments are separator, `true` or `false` for internal topics, topics. */
public class PolicyOracle {
    public static void main(String[] args) {
        DefaultReplicationPolicy prefix = new DefaultReplicationPolicy();
        IdentityReplicationPolicy identity = new IdentityReplicationPolicy();
        Map<String, Object> config = Map.of(
            "replication.policy.separator", args[0],
            "replication.policy.internal.topic.separator.enabled", args[1],
            "source.cluster.alias", "A");
        prefix.configure(config);
        identity.configure(config);
        for (int i = 2; i < args.length; i++) {
            String topic = args[i];
            for (ReplicationPolicy policy : new ReplicationPolicy[] {prefix, identity}) {
                System.out.println(String.join("\t", policy.getClass().getSimpleName(), topic,
                    policy.formatRemoteTopic("A", topic), "" + policy.topicSource(topic), "" + policy.upstreamTopic(topic),
                    "" + policy.originalTopic(topic), policy.offsetSyncsTopic(topic), policy.checkpointsTopic(topic),
                    "" + policy.isHeartbeatsTopic(topic), "" + policy.isCheckpointsTopic(topic),
                    "" + policy.isMM2InternalTopic(topic), "" + policy.isInternalTopic(topic)));
            }
        }
    }
}
