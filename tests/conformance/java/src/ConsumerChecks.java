import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.NoOffsetForPartitionException;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidRegularExpression;
import org.apache.kafka.common.errors.UnsupportedAssignorException;

/** Consumers with the classic group protocol and with KIP-848's. */
final class ConsumerChecks {
    public static void classicGoesOnWhereItCommitted(Cluster c) throws Exception {
        goesOn(c, "classic");
    }

    public static void consumerGoesOnWhereItCommitted(Cluster c) throws Exception {
        goesOn(c, "consumer");
    }

    private static void goesOn(Cluster c, String protocol) throws Exception {
        String topic = c.topic(2);
        String group = Cluster.name("group");
        c.fill(topic, 2, 100);
        var first = member(c, protocol, group, topic, "max.poll.records", "10");
        Set<String> seen = new HashSet<>();
        while (seen.size() < 50) {
            first.poll(Duration.ofMillis(100)).forEach(r -> seen.add(r.value()));
        }
        first.commitSync();
        first.close();
        var second = member(c, protocol, group, topic);
        var rest = Cluster.values(Cluster.take(second, 100 - seen.size()));
        rest.forEach(v -> Cluster.check(seen.add(v), v + " came twice"));
        Cluster.nothing(second);
    }

    public static void classicMembersShareAndHandOver(Cluster c) throws Exception {
        share(c, "classic");
    }

    public static void classicCooperativeMembersShareAndHandOver(Cluster c) throws Exception {
        share(c, "classic", "partition.assignment.strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
    }

    public static void consumerMembersShareAndHandOver(Cluster c) throws Exception {
        share(c, "consumer");
    }

    public static void consumerMembersShareByRange(Cluster c) throws Exception {
        share(c, "consumer", "group.remote.assignor", "range");
    }

    private static void share(Cluster c, String protocol, String... settings) throws Exception {
        String topic = c.topic(6);
        String group = Cluster.name("group");
        var first = member(c, protocol, group, topic, settings);
        assigned(first, 6);
        var second = member(c, protocol, group, topic, settings);
        bothPoll("three each", first, second, () -> first.assignment().size() == 3 && second.assignment().size() == 3);
        Set<TopicPartition> all = new HashSet<>(first.assignment());
        all.addAll(second.assignment());
        Cluster.equal(6, all.size(), "no partition is held twice");
        second.close();
        assigned(first, 6);
    }

    public static void classicStaticMemberComesBack(Cluster c) throws Exception {
        comesBack(c, "classic");
    }

    public static void consumerStaticMemberComesBack(Cluster c) throws Exception {
        comesBack(c, "consumer");
    }

    private static void comesBack(Cluster c, String protocol) throws Exception {
        String topic = c.topic(4);
        String group = Cluster.name("group");
        var other = member(c, protocol, group, topic, "group.instance.id", "a");
        var leaver = member(c, protocol, group, topic, "group.instance.id", "b");
        bothPoll("two each", other, leaver, () -> other.assignment().size() == 2 && leaver.assignment().size() == 2);
        Set<TopicPartition> kept = Set.copyOf(other.assignment());
        Set<TopicPartition> left = Set.copyOf(leaver.assignment());
        leaver.close();
        for (int i = 0; i < 10; i++) {
            other.poll(Duration.ofMillis(100));
        }
        Cluster.equal(kept, other.assignment(), "nothing moves while a static member is away");
        var back = member(c, protocol, group, topic, "group.instance.id", "b");
        bothPoll("its partitions again", other, back, () -> back.assignment().equals(left));
    }

    public static void classicFollowsAPattern(Cluster c) throws Exception {
        String prefix = Cluster.name("pattern");
        var consumer = c.consumer("group.id", prefix, "group.protocol", "classic", "metadata.max.age.ms", "500");
        consumer.subscribe(Pattern.compile(prefix + "-.*"));
        follows(c, consumer, prefix);
    }

    public static void consumerFollowsAPattern(Cluster c) throws Exception {
        String prefix = Cluster.name("pattern");
        var consumer = c.consumer("group.id", prefix, "group.protocol", "consumer", "metadata.max.age.ms", "500");
        consumer.subscribe(Pattern.compile(prefix + "-.*"));
        follows(c, consumer, prefix);
    }

    public static void consumerPatternIsResolvedByTheBroker(Cluster c) throws Exception {
        String prefix = Cluster.name("pattern");
        var consumer = c.consumer("group.id", prefix, "group.protocol", "consumer");
        Cluster.get(c.admin().createTopics(List.of(new org.apache.kafka.clients.admin.NewTopic(prefix + "-0", 2, (short) 1))).all());
        consumer.subscribe(new SubscriptionPattern(prefix + "-.*"));
        assigned(consumer, 2);
        var bad = c.consumer("group.id", Cluster.name("group"), "group.protocol", "consumer");
        bad.subscribe(new SubscriptionPattern("(["));
        Cluster.fails(InvalidRegularExpression.class, () -> pollFor(bad));
    }

    private static void follows(Cluster c, KafkaConsumer<String, String> consumer, String prefix) throws Exception {
        for (int i = 0; i < 2; i++) {
            var topic = new org.apache.kafka.clients.admin.NewTopic(prefix + "-" + i, 2, (short) 1);
            Cluster.get(c.admin().createTopics(List.of(topic)).all());
            assigned(consumer, 2 * (i + 1));
        }
    }

    public static void consumerWithAnUnknownAssignorIsRefused(Cluster c) throws Exception {
        var consumer = member(c, "consumer", Cluster.name("group"), c.topic(1), "group.remote.assignor", "nobody");
        Cluster.fails(UnsupportedAssignorException.class, () -> pollFor(consumer));
    }

    public static void aGroupMovesToTheNewProtocolAndBack(Cluster c) throws Exception {
        String topic = c.topic(4);
        String group = Cluster.name("group");
        c.fill(topic, 4, 40);
        var old = member(c, "classic", group, topic, "partition.assignment.strategy",
                "org.apache.kafka.clients.consumer.CooperativeStickyAssignor", "heartbeat.interval.ms", "500");
        Cluster.take(old, 40);
        old.commitSync();
        var modern = member(c, "consumer", group, topic);
        bothPoll("two each across protocols", old, modern, () -> old.assignment().size() == 2 && modern.assignment().size() == 2);
        old.close();
        assigned(modern, 4);
        Cluster.nothing(modern);
        c.fill(topic, 4, 8);
        Cluster.take(modern, 8);
        modern.commitSync();
        var again = member(c, "classic", group, topic, "partition.assignment.strategy",
                "org.apache.kafka.clients.consumer.CooperativeStickyAssignor", "heartbeat.interval.ms", "500");
        bothPoll("two each, back", again, modern, () -> again.assignment().size() == 2 && modern.assignment().size() == 2);
        modern.close();
        assigned(again, 4);
        Cluster.nothing(again);
    }

    public static void classicLeavesWhenItIsLate(Cluster c) throws Exception {
        KafkaConsumer<String, String> consumer = late(c, "classic");
        var partition = consumer.assignment().iterator().next();
        Cluster.fails(CommitFailedException.class, () -> {
            consumer.commitSync(Map.of(partition, new OffsetAndMetadata(1)));
            return null;
        });
        Cluster.take(consumer, 10); // it joins again, and nothing was committed
    }

    public static void consumerLeavesWhenItIsLate(Cluster c) throws Exception {
        Cluster.take(late(c, "consumer"), 10);
    }

    /** A member that does not poll for max.poll.interval.ms is out of its group. */
    private static KafkaConsumer<String, String> late(Cluster c, String protocol) throws Exception {
        String topic = c.topic(1);
        c.fill(topic, 1, 10);
        String group = Cluster.name("group");
        var consumer = member(c, protocol, group, topic, "max.poll.interval.ms", "2000", "max.poll.records", "1");
        Cluster.take(consumer, 1);
        Cluster.eventually("the group to be empty", () -> Cluster.get(
                c.admin().describeConsumerGroups(List.of(group)).all()).get(group).members().isEmpty());
        return consumer;
    }

    public static void positionsAreFoundAndSought(Cluster c) throws Exception {
        String topic = c.topic(1);
        var partition = new TopicPartition(topic, 0);
        var producer = c.producer();
        for (int i = 0; i < 20; i++) {
            producer.send(new ProducerRecord<>(topic, 0, 1_700_000_000_000L + i * 1000L, "k", "v" + i)).get();
        }
        var consumer = c.consumer();
        consumer.assign(List.of(partition));
        Cluster.equal(Map.of(partition, 0L), consumer.beginningOffsets(List.of(partition)), "beginning");
        Cluster.equal(Map.of(partition, 20L), consumer.endOffsets(List.of(partition)), "end");
        var found = consumer.offsetsForTimes(Map.of(partition, 1_700_000_010_500L)).get(partition);
        Cluster.equal(11L, found.offset(), "offset for a time");
        Cluster.equal(1_700_000_011_000L, found.timestamp(), "its timestamp");
        consumer.seek(partition, 15);
        Cluster.equal("v15", Cluster.take(consumer, 5).get(0).value(), "after a seek");
        consumer.seekToBeginning(List.of(partition));
        consumer.pause(List.of(partition));
        Cluster.nothing(consumer);
        consumer.resume(List.of(partition));
        Cluster.take(consumer, 20);
        Cluster.eventually("no lag", () -> consumer.currentLag(partition).orElse(-1) == 0);
    }

    public static void withoutAResetThereIsAnError(Cluster c) throws Exception {
        var consumer = c.consumer("auto.offset.reset", "none", "group.id", Cluster.name("group"));
        consumer.assign(List.of(new TopicPartition(c.topic(1), 0)));
        Cluster.fails(NoOffsetForPartitionException.class, () -> pollFor(consumer));
    }

    public static void smallFetchesMakeProgress(Cluster c) throws Exception {
        String topic = c.topic(3);
        var producer = c.producer("batch.size", "100");
        for (int i = 0; i < 60; i++) {
            producer.send(new ProducerRecord<>(topic, i % 3, "k", "x".repeat(2000) + i));
        }
        producer.flush();
        var consumer = c.consumer("max.partition.fetch.bytes", "100", "fetch.max.bytes", "1000");
        consumer.assign(List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1), new TopicPartition(topic, 2)));
        Cluster.take(consumer, 60);
    }

    public static void fetchesWaitForRecords(Cluster c) throws Exception {
        String topic = c.topic(1);
        var consumer = c.consumer("fetch.max.wait.ms", "20000", "fetch.min.bytes", "1");
        consumer.assign(List.of(new TopicPartition(topic, 0)));
        Cluster.nothing(consumer);
        long start = System.nanoTime();
        c.producer().send(new ProducerRecord<>(topic, "late")).get();
        Cluster.take(consumer, 1);
        Cluster.check(System.nanoTime() - start < 5_000_000_000L, "a parked fetch is answered when records come");
    }

    public static void manyTopicsInOneSession(Cluster c) throws Exception {
        List<String> topics = new ArrayList<>();
        List<TopicPartition> partitions = new ArrayList<>();
        for (int i = 0; i < 20; i++) {
            topics.add(c.topic(2));
            partitions.add(new TopicPartition(topics.get(i), 0));
            partitions.add(new TopicPartition(topics.get(i), 1));
        }
        var consumer = c.consumer("fetch.max.wait.ms", "200");
        consumer.assign(partitions);
        Cluster.nothing(consumer);
        var producer = c.producer();
        for (int round = 0; round < 5; round++) {
            for (int i = round; i < 20; i += 5) {
                producer.send(new ProducerRecord<>(topics.get(i), round % 2, "k", "v" + round));
            }
            producer.flush();
            Cluster.take(consumer, 4);
        }
        consumer.assign(partitions.subList(0, 4));
        producer.send(new ProducerRecord<>(topics.get(10), 0, "k", "not for us")).get();
        producer.send(new ProducerRecord<>(topics.get(1), 1, "k", "for us")).get();
        Cluster.equal(List.of("for us"), Cluster.values(Cluster.take(consumer, 1)), "after partitions left the session");
    }

    static KafkaConsumer<String, String> member(Cluster c, String protocol, String group, String topic, String... settings) {
        List<String> all = new ArrayList<>(List.of("group.id", group, "group.protocol", protocol));
        all.addAll(List.of(settings));
        var consumer = c.consumer(all.toArray(String[]::new));
        consumer.subscribe(List.of(topic));
        return consumer;
    }

    private static void assigned(KafkaConsumer<String, String> consumer, int count) throws Exception {
        Cluster.eventually(count + " partitions", () -> {
            consumer.poll(Duration.ofMillis(50));
            return consumer.assignment().size() == count;
        });
    }

    private static void bothPoll(
            String what, KafkaConsumer<String, String> a, KafkaConsumer<String, String> b, Callable<Boolean> holds)
            throws Exception {
        Cluster.eventually(what, () -> {
            a.poll(Duration.ofMillis(50));
            b.poll(Duration.ofMillis(50));
            return holds.call();
        });
    }

    private static Object pollFor(KafkaConsumer<String, String> consumer) {
        for (int i = 0; i < 100; i++) {
            consumer.poll(Duration.ofMillis(100));
        }
        return null;
    }
}
