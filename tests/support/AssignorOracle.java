import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Kafka's own server-side assignors: a group a line on standard input, its assignment on standard output.
 *
 * Fields are separated by blanks. assignor, homogeneous (true or false), number of topics; for each topic two halves
 * of its id and its partitions; for each member id, instance id (or -), topics (numbers with commas, or -) and its last
 * assignment (topic:partition with commas, or -). The answer: member=topic:partition,... sorted, with blanks between.
 */
public final class AssignorOracle {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) System.out.println(answer(line.split(" ")));
    }

    private static String answer(String[] words) {
        int at = 3;
        List<Uuid> topics = new ArrayList<>();
        Map<Uuid, Integer> counts = new HashMap<>();
        for (int i = 0; i < Integer.parseInt(words[2]); i++, at += 3) {
            Uuid id = new Uuid(Long.parseLong(words[at]), Long.parseLong(words[at + 1]));
            topics.add(id);
            counts.put(id, Integer.parseInt(words[at + 2]));
        }
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        for (; at < words.length; at += 4) {
            Set<Uuid> subscribed = new LinkedHashSet<>();
            if (!words[at + 2].equals("-"))
                for (String topic : words[at + 2].split(",")) subscribed.add(topics.get(Integer.parseInt(topic)));
            Map<Uuid, List<Integer>> last = new java.util.LinkedHashMap<>();
            if (!words[at + 3].equals("-"))
                for (String item : words[at + 3].split(",")) {
                    String[] parts = item.split(":");
                    Uuid topic = topics.get(Integer.parseInt(parts[0]));
                    last.computeIfAbsent(topic, __ -> new ArrayList<>()).add(Integer.parseInt(parts[1]));
                    owners.computeIfAbsent(topic, __ -> new HashMap<>()).put(Integer.parseInt(parts[1]), words[at]);
                }
            Map<Uuid, Set<Integer>> assignment = new HashMap<>();
            last.forEach((topic, partitions) -> assignment.put(topic, new HashSet<>(partitions)));
            Optional<String> instance = words[at + 1].equals("-") ? Optional.empty() : Optional.of(words[at + 1]);
            members.put(words[at], new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), instance, subscribed, new Assignment(assignment)));
        }
        SubscribedTopicDescriber describer = new SubscribedTopicDescriber() {
            @Override public int numPartitions(Uuid topicId) { return counts.getOrDefault(topicId, -1); }
            @Override public Set<String> racksForPartition(Uuid topicId, int partition) { return Set.of(); }
        };
        ConsumerGroupPartitionAssignor assignor = words[0].equals("range") ? new RangeAssignor() : new UniformAssignor();
        SubscriptionType type = words[1].equals("true") ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        Map<String, MemberAssignment> result = assignor.assign(new GroupSpecImpl(members, type, owners), describer).members();
        Map<String, String> lines = new TreeMap<>();
        result.forEach((member, assigned) -> {
            Set<String> items = new TreeSet<>();
            assigned.partitions().forEach((topic, partitions) ->
                partitions.forEach(p -> items.add(topics.indexOf(topic) + ":" + p)));
            lines.put(member, member + "=" + String.join(",", items));
        });
        return String.join(" ", lines.values());
    }
}
