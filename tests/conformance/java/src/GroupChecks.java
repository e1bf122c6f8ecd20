import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.GroupSubscribedToTopicException;
import org.apache.kafka.common.errors.UnknownMemberIdException;

/** Groups of both protocols as the AdminClient sees and changes them. */
final class GroupChecks {
    public static void classicGroupIsDescribed(Cluster c) throws Exception {
        String topic = c.topic(2);
        String group = Cluster.name("group");
        c.fill(topic, 2, 10);
        Cluster.take(member(c, "classic", group, topic), 10);
        var found = Cluster.get(c.admin().describeConsumerGroups(List.of(group)).all()).get(group);
        Cluster.equal(GroupState.STABLE, found.groupState(), "state");
        Cluster.equal(GroupType.CLASSIC, found.type(), "type");
        Cluster.equal("range", found.partitionAssignor(), "assignor");
        Cluster.equal(2, found.members().iterator().next().assignment().topicPartitions().size(), "assignment");
        Cluster.equal(group, Cluster.get(c.admin().describeClassicGroups(List.of(group)).all()).get(group).groupId(), "classic");
        listed(c, group, GroupType.CLASSIC);
    }

    public static void consumerGroupIsDescribed(Cluster c) throws Exception {
        String topic = c.topic(2);
        String group = Cluster.name("group");
        c.fill(topic, 2, 10);
        Cluster.take(member(c, "consumer", group, topic), 10);
        Cluster.eventually("a stable group", () -> Cluster.get(
                c.admin().describeConsumerGroups(List.of(group)).all()).get(group).groupState() == GroupState.STABLE);
        var found = Cluster.get(c.admin().describeConsumerGroups(List.of(group)).all()).get(group);
        Cluster.equal(GroupType.CONSUMER, found.type(), "type");
        Cluster.equal("uniform", found.partitionAssignor(), "assignor");
        var member = found.members().iterator().next();
        Cluster.equal(2, member.assignment().topicPartitions().size(), "assignment");
        Cluster.equal(member.assignment(), member.targetAssignment().orElseThrow(), "target assignment");
        Cluster.equal(found.groupEpoch(), found.targetAssignmentEpoch(), "epochs");
        Cluster.equal(Optional.of(true), member.upgraded(), "a member of the new protocol");
        listed(c, group, GroupType.CONSUMER);
    }

    public static void offsetsOfAnEmptyGroupAreChanged(Cluster c) throws Exception {
        String topic = c.topic(2);
        String group = Cluster.name("group");
        var first = new TopicPartition(topic, 0);
        var second = new TopicPartition(topic, 1);
        Cluster.get(c.admin().alterConsumerGroupOffsets(
                group, Map.of(first, new OffsetAndMetadata(7, Optional.of(0), "why"), second, new OffsetAndMetadata(8))).all());
        var offsets = Cluster.get(c.admin().listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
        Cluster.equal(new OffsetAndMetadata(7, Optional.of(0), "why"), offsets.get(first), "first");
        Cluster.equal(8L, offsets.get(second).offset(), "second");
        Cluster.get(c.admin().deleteConsumerGroupOffsets(group, Set.of(first)).all());
        Cluster.equal(
                Set.of(second), Cluster.get(c.admin().listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()).keySet(),
                "what is left");
        Cluster.get(c.admin().deleteConsumerGroups(List.of(group)).all());
        Cluster.fails(GroupIdNotFoundException.class, () -> Cluster.get(
                c.admin().describeConsumerGroups(List.of(group)).all()));
    }

    public static void classicGroupInUseIsProtected(Cluster c) throws Exception {
        inUse(c, "classic");
    }

    public static void consumerGroupInUseIsProtected(Cluster c) throws Exception {
        inUse(c, "consumer");
    }

    private static void inUse(Cluster c, String protocol) throws Exception {
        String topic = c.topic(1);
        String group = Cluster.name("group");
        c.fill(topic, 1, 5);
        var consumer = member(c, protocol, group, topic);
        Cluster.take(consumer, 5);
        consumer.commitSync();
        var partition = new TopicPartition(topic, 0);
        Cluster.fails(GroupNotEmptyException.class, () -> Cluster.get(c.admin().deleteConsumerGroups(List.of(group)).all()));
        Cluster.fails(GroupSubscribedToTopicException.class, () -> Cluster.get(
                c.admin().deleteConsumerGroupOffsets(group, Set.of(partition)).all()));
        Cluster.fails(UnknownMemberIdException.class, () -> Cluster.get(
                c.admin().alterConsumerGroupOffsets(group, Map.of(partition, new OffsetAndMetadata(0))).all()));
        consumer.close();
        Cluster.eventually("an empty group", () -> Cluster.get(
                c.admin().describeConsumerGroups(List.of(group)).all()).get(group).groupState() == GroupState.EMPTY);
        Cluster.get(c.admin().deleteConsumerGroups(List.of(group)).all());
    }

    public static void aStaticMemberIsRemoved(Cluster c) throws Exception {
        String topic = c.topic(1);
        String group = Cluster.name("group");
        c.fill(topic, 1, 5);
        var consumer = c.consumer("group.id", group, "group.instance.id", "one", "group.protocol", "classic");
        consumer.subscribe(List.of(topic));
        Cluster.take(consumer, 5);
        var who = new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("one")));
        Cluster.get(c.admin().removeMembersFromConsumerGroup(group, who).all());
        Cluster.equal(0, Cluster.get(c.admin().describeConsumerGroups(List.of(group)).all()).get(group).members().size(), "members");
    }

    private static KafkaConsumer<String, String> member(Cluster c, String protocol, String group, String topic) {
        var consumer = c.consumer("group.id", group, "group.protocol", protocol);
        consumer.subscribe(List.of(topic));
        return consumer;
    }

    private static void listed(Cluster c, String group, GroupType type) throws Exception {
        var options = new ListGroupsOptions().withTypes(Set.of(type));
        var found = Cluster.get(c.admin().listGroups(options).all()).stream().filter(g -> g.groupId().equals(group)).toList();
        Cluster.equal(1, found.size(), "listings of the group");
        Cluster.equal(Optional.of(GroupState.STABLE), found.get(0).groupState(), "listed state");
        Cluster.equal("consumer", found.get(0).protocol(), "listed protocol type");
    }
}
