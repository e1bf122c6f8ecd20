import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ElectionNotNeededException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.errors.ResourceNotFoundException;
import org.apache.kafka.common.errors.SecurityDisabledException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;

/** A tour of the AdminClient: what a single node can be asked and told. */
final class AdminChecks {
    public static void topicsAreMadeDescribedAndDeleted(Cluster c) throws Exception {
        Admin admin = c.admin();
        String name = Cluster.name("made");
        var made = admin.createTopics(List.of(new NewTopic(name, 3, (short) 1).configs(Map.of("retention.ms", "60000"))));
        Cluster.equal(3, Cluster.get(made.numPartitions(name)), "partitions");
        Cluster.equal("60000", Cluster.get(made.config(name)).get("retention.ms").value(), "retention.ms");
        var description = Cluster.get(admin.describeTopics(List.of(name)).allTopicNames()).get(name);
        Cluster.equal(3, description.partitions().size(), "described partitions");
        Cluster.equal(Cluster.get(made.topicId(name)), description.topicId(), "topic id");
        var again = admin.createTopics(List.of(new NewTopic(name, 3, (short) 1)));
        Cluster.fails(TopicExistsException.class, () -> Cluster.get(again.all()));
        var ids = TopicCollection.ofTopicIds(List.of(description.topicId()));
        Cluster.equal(name, Cluster.get(admin.describeTopics(ids).allTopicIds()).get(description.topicId()).name(), "by id");
        Cluster.check(Cluster.get(admin.listTopics().names()).contains(name), "the topic is listed");
        Cluster.get(admin.deleteTopics(ids).all());
        Cluster.fails(
                UnknownTopicOrPartitionException.class,
                () -> Cluster.get(admin.describeTopics(List.of(name)).allTopicNames()));
    }

    public static void badTopicsAreRefused(Cluster c) throws Exception {
        Admin admin = c.admin();
        var bad = List.of(
                new NewTopic("bad name", 1, (short) 1), new NewTopic(Cluster.name("none"), 0, (short) 1),
                new NewTopic(Cluster.name("replicas"), 1, (short) 2),
                new NewTopic(Cluster.name("config"), 1, (short) 1).configs(Map.of("retention.ms", "long")));
        var answers = admin.createTopics(bad).values();
        Cluster.fails(InvalidTopicException.class, () -> Cluster.get(answers.get(bad.get(0).name())));
        Cluster.fails(InvalidPartitionsException.class, () -> Cluster.get(answers.get(bad.get(1).name())));
        Cluster.fails(InvalidReplicationFactorException.class, () -> Cluster.get(answers.get(bad.get(2).name())));
        Cluster.fails(InvalidConfigurationException.class, () -> Cluster.get(answers.get(bad.get(3).name())));
    }

    public static void topicConfigsAreAltered(Cluster c) throws Exception {
        String topic = c.topic(1);
        var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        alter(c, resource, "cleanup.policy", "compact", AlterConfigOp.OpType.APPEND);
        alter(c, resource, "max.message.bytes", "2000", AlterConfigOp.OpType.SET);
        eventualValue(c, resource, "cleanup.policy", "delete,compact");
        eventualValue(c, resource, "max.message.bytes", "2000");
        Cluster.equal(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, entry(c, resource, "max.message.bytes").source(), "source");
        alter(c, resource, "cleanup.policy", "delete", AlterConfigOp.OpType.SUBTRACT);
        alter(c, resource, "max.message.bytes", "", AlterConfigOp.OpType.DELETE);
        eventualValue(c, resource, "cleanup.policy", "compact");
        eventualValue(c, resource, "max.message.bytes", "1048588");
        Cluster.equal(ConfigEntry.ConfigSource.DEFAULT_CONFIG, entry(c, resource, "max.message.bytes").source(), "source");
        Cluster.fails(
                InvalidConfigurationException.class,
                () -> alter(c, resource, "segment.bytes", "-5", AlterConfigOp.OpType.SET));
    }

    public static void brokerConfigsAreDynamic(Cluster c) throws Exception {
        int id = Cluster.get(c.admin().describeCluster().controller()).id();
        var broker = new ConfigResource(ConfigResource.Type.BROKER, Integer.toString(id));
        var all = new ConfigResource(ConfigResource.Type.BROKER, "");
        Cluster.equal(ConfigEntry.ConfigSource.STATIC_BROKER_CONFIG, entry(c, broker, "listeners").source(), "listeners");
        alter(c, all, "log.cleaner.delete.retention.ms", "70000", AlterConfigOp.OpType.SET);
        try {
            eventualValue(c, broker, "log.cleaner.delete.retention.ms", "70000");
            Cluster.equal(
                    ConfigEntry.ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
                    entry(c, broker, "log.cleaner.delete.retention.ms").source(), "source of the cluster's default");
            alter(c, broker, "log.cleaner.delete.retention.ms", "80000", AlterConfigOp.OpType.SET);
            eventualValue(c, broker, "log.cleaner.delete.retention.ms", "80000");
            String topic = c.topic(1);
            var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            eventualValue(c, resource, "delete.retention.ms", "80000"); // a topic's default follows
        } finally {
            alter(c, broker, "log.cleaner.delete.retention.ms", "", AlterConfigOp.OpType.DELETE);
            alter(c, all, "log.cleaner.delete.retention.ms", "", AlterConfigOp.OpType.DELETE);
        }
    }

    public static void groupAndMetricsConfigsAreKept(Cluster c) throws Exception {
        var group = new ConfigResource(ConfigResource.Type.GROUP, Cluster.name("group"));
        alter(c, group, "consumer.session.timeout.ms", "50000", AlterConfigOp.OpType.SET);
        eventualValue(c, group, "consumer.session.timeout.ms", "50000");
        var metrics = new ConfigResource(ConfigResource.Type.CLIENT_METRICS, Cluster.name("metrics"));
        alter(c, metrics, "interval.ms", "30000", AlterConfigOp.OpType.SET);
        eventualValue(c, metrics, "interval.ms", "30000");
        Collection<ConfigResource> listed = Cluster.get(c.admin().listConfigResources().all());
        Cluster.check(listed.contains(group) && listed.contains(metrics), "both are listed");
        alter(c, metrics, "interval.ms", "", AlterConfigOp.OpType.DELETE);
        alter(c, group, "consumer.session.timeout.ms", "", AlterConfigOp.OpType.DELETE);
        Cluster.fails(
                InvalidConfigurationException.class,
                () -> alter(c, group, "consumer.session.timeout.ms", "1", AlterConfigOp.OpType.SET));
    }

    public static void partitionsAreAdded(Cluster c) throws Exception {
        String topic = c.topic(2);
        Cluster.get(c.admin().createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all());
        Cluster.eventually("five partitions", () -> Cluster.get(c.admin().describeTopics(List.of(topic)).allTopicNames())
                .get(topic).partitions().size() == 5);
        Cluster.fails(
                InvalidPartitionsException.class,
                () -> Cluster.get(c.admin().createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all()));
    }

    public static void recordsAreDeleted(Cluster c) throws Exception {
        String topic = c.topic(1);
        c.fill(topic, 1, 100);
        var partition = new TopicPartition(topic, 0);
        var deleted = c.admin().deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(60)));
        Cluster.equal(60L, Cluster.get(deleted.lowWatermarks().get(partition)).lowWatermark(), "low watermark");
        Cluster.equal(60L, offset(c, partition, OffsetSpec.earliest()), "earliest");
        Cluster.fails(OffsetOutOfRangeException.class, () -> Cluster.get(
                c.admin().deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(1000))).all()));
    }

    public static void offsetsAreListedByEverySpec(Cluster c) throws Exception {
        String topic = c.topic(1);
        var partition = new TopicPartition(topic, 0);
        var producer = c.producer();
        long[] times = {1000, 5000, 3000};
        for (long time : times) {
            producer.send(new ProducerRecord<>(topic, 0, 1_700_000_000_000L + time, "k", "v")).get();
        }
        Cluster.equal(0L, offset(c, partition, OffsetSpec.earliest()), "earliest");
        Cluster.equal(3L, offset(c, partition, OffsetSpec.latest()), "latest");
        Cluster.equal(1L, offset(c, partition, OffsetSpec.maxTimestamp()), "largest timestamp");
        Cluster.equal(1L, offset(c, partition, OffsetSpec.forTimestamp(1_700_000_002_000L)), "by time");
        Cluster.equal(-1L, offset(c, partition, OffsetSpec.forTimestamp(1_700_000_009_000L)), "by a time too late");
        Cluster.equal(0L, offset(c, partition, OffsetSpec.earliestLocal()), "earliest local");
        Cluster.equal(-1L, offset(c, partition, OffsetSpec.latestTiered()), "latest tiered");
    }

    public static void theClusterDescribesItself(Cluster c) throws Exception {
        var cluster = c.admin().describeCluster();
        Cluster.equal(22, Cluster.get(cluster.clusterId()).length(), "length of the cluster id");
        Cluster.equal(1, Cluster.get(cluster.nodes()).size(), "nodes");
        Cluster.equal(Cluster.get(cluster.nodes()).iterator().next().id(), Cluster.get(cluster.controller()).id(), "controller");
        var quorum = Cluster.get(c.admin().describeMetadataQuorum().quorumInfo());
        Cluster.equal(Cluster.get(cluster.controller()).id(), quorum.leaderId(), "leader of the quorum");
        Cluster.equal(1, quorum.voters().size(), "voters");
    }

    public static void featuresAreDescribedAndUpdated(Cluster c) throws Exception {
        var features = Cluster.get(c.admin().describeFeatures().featureMetadata());
        Cluster.equal((short) 2, features.finalizedFeatures().get("transaction.version").maxVersionLevel(), "transactions");
        Cluster.equal((short) 1, features.finalizedFeatures().get("group.version").maxVersionLevel(), "groups");
        Cluster.check(features.finalizedFeatures().containsKey("metadata.version"), "metadata.version is final");
        var update = new FeatureUpdate((short) 2, FeatureUpdate.UpgradeType.UPGRADE);
        var options = new UpdateFeaturesOptions().validateOnly(true);
        Cluster.get(c.admin().updateFeatures(Map.of("transaction.version", update), options).all());
    }

    public static void logDirectoriesAreDescribed(Cluster c) throws Exception {
        String topic = c.topic(1);
        c.fill(topic, 1, 10);
        int id = Cluster.get(c.admin().describeCluster().controller()).id();
        var replica = new TopicPartitionReplica(topic, 0, id);
        var dirs = Cluster.get(c.admin().describeLogDirs(List.of(id)).allDescriptions()).get(id);
        var holder = dirs.values().stream().filter(d -> d.replicaInfos().containsKey(new TopicPartition(topic, 0))).toList();
        Cluster.equal(1, holder.size(), "directories that hold the partition");
        Cluster.check(holder.get(0).replicaInfos().get(new TopicPartition(topic, 0)).size() > 0, "its size");
        Cluster.check(holder.get(0).totalBytes().getAsLong() > 0, "the file system's size");
        String path = Cluster.get(c.admin().describeReplicaLogDirs(List.of(replica)).all()).get(replica).getCurrentReplicaLogDir();
        Cluster.check(dirs.containsKey(path), "the replica's directory is one of them");
        Cluster.get(c.admin().alterReplicaLogDirs(Map.of(replica, path)).all());
    }

    public static void leadersAndReassignmentsOfOneNode(Cluster c) throws Exception {
        var partition = new TopicPartition(c.topic(1), 0);
        var elected = Cluster.get(c.admin().electLeaders(ElectionType.PREFERRED, Set.of(partition)).partitions());
        Cluster.check(elected.get(partition).orElseThrow() instanceof ElectionNotNeededException, "no election is needed");
        int id = Cluster.get(c.admin().describeCluster().controller()).id();
        var same = Optional.of(new NewPartitionReassignment(List.of(id)));
        Cluster.get(c.admin().alterPartitionReassignments(Map.of(partition, same)).all());
        Cluster.eventually("no reassignment under way", () -> Cluster.get(
                c.admin().listPartitionReassignments(Set.of(partition)).reassignments()).isEmpty());
    }

    public static void quotasAreKept(Cluster c) throws Exception {
        var entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, Cluster.name("client")));
        String client = entity.entries().get(ClientQuotaEntity.CLIENT_ID);
        var filter = ClientQuotaFilter.contains(
                List.of(ClientQuotaFilterComponent.ofEntity(ClientQuotaEntity.CLIENT_ID, client)));
        var set = new ClientQuotaAlteration(entity, List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1e9)));
        Cluster.get(c.admin().alterClientQuotas(List.of(set)).all());
        Cluster.eventually("the quota", () -> Map.of(entity, Map.of("producer_byte_rate", 1e9))
                .equals(Cluster.get(c.admin().describeClientQuotas(filter).entities())));
        var remove = new ClientQuotaAlteration(entity, List.of(new ClientQuotaAlteration.Op("producer_byte_rate", null)));
        Cluster.get(c.admin().alterClientQuotas(List.of(remove)).all());
        Cluster.eventually("no quota", () -> Cluster.get(c.admin().describeClientQuotas(filter).entities()).isEmpty());
    }

    public static void scramUsersAreKept(Cluster c) throws Exception {
        String user = Cluster.name("user");
        var info = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096);
        Cluster.get(c.admin().alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(user, info, "secret"))).all());
        Cluster.eventually("the user", () -> Cluster.get(c.admin().describeUserScramCredentials(List.of(user))
                .description(user)).credentialInfos().equals(List.of(info)));
        var gone = new UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_256);
        Cluster.get(c.admin().alterUserScramCredentials(List.of(gone)).all());
        Cluster.eventually("no such user", () -> {
            Cluster.fails(ResourceNotFoundException.class, () -> Cluster.get(
                    c.admin().describeUserScramCredentials(List.of(user)).description(user)));
            return true;
        });
    }

    public static void aclsNeedAnAuthorizer(Cluster c) throws Exception {
        Cluster.fails(SecurityDisabledException.class, () -> Cluster.get(c.admin().describeAcls(AclBindingFilter.ANY).values()));
    }

    static Void alter(Cluster c, ConfigResource resource, String key, String value, AlterConfigOp.OpType how) throws Exception {
        var op = new AlterConfigOp(new ConfigEntry(key, value), how);
        return Cluster.get(c.admin().incrementalAlterConfigs(Map.of(resource, List.of(op))).all());
    }

    static ConfigEntry entry(Cluster c, ConfigResource resource, String key) throws Exception {
        ConfigEntry found = Cluster.get(c.admin().describeConfigs(List.of(resource)).all()).get(resource).get(key);
        Cluster.check(found != null, resource + " has no " + key);
        return found;
    }

    static void eventualValue(Cluster c, ConfigResource resource, String key, String value) throws Exception {
        Cluster.eventually(key + "=" + value, () -> value.equals(entry(c, resource, key).value()));
    }

    static long offset(Cluster c, TopicPartition partition, OffsetSpec spec) throws Exception {
        return Cluster.get(c.admin().listOffsets(Map.of(partition, spec)).partitionResult(partition)).offset();
    }}
