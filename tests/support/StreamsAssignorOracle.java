import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.coordinator.group.streams.assignor.AssignmentMemberSpec;
import org.apache.kafka.coordinator.group.streams.assignor.GroupSpecImpl;
import org.apache.kafka.coordinator.group.streams.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor;
import org.apache.kafka.coordinator.group.streams.assignor.TopologyDescriber;

/**
 * Kafka's own assignor of Streams groups: a group a line on standard input, its assignment on standard output.
 *
 * Fields are separated by blanks. Number of standbys, number of subtopologies; for each its id, tasks, and whether it has
 * state; for each member id, process, and its last active and standby tasks (subtopology:partition with commas, or -).
 * The answer: member=active tasks/standby tasks, sorted, with blanks between.
 */
public final class StreamsAssignorOracle {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) System.out.println(answer(line.split(" ")));
    }

    private static String answer(String[] words) {
        int at = 2;
        List<String> subtopologies = new ArrayList<>();
        Map<String, Integer> counts = new HashMap<>();
        Set<String> stateful = new HashSet<>();
        for (int i = 0; i < Integer.parseInt(words[1]); i++, at += 3) {
            subtopologies.add(words[at]);
            counts.put(words[at], Integer.parseInt(words[at + 1]));
            if (words[at + 2].equals("true")) stateful.add(words[at]);
        }
        Map<String, AssignmentMemberSpec> members = new HashMap<>();
        for (; at < words.length; at += 4)
            members.put(words[at], new AssignmentMemberSpec(Optional.empty(), Optional.empty(), tasks(words[at + 2]),
                tasks(words[at + 3]), Map.of(), words[at + 1], Map.of(), Map.of(), Map.of()));
        TopologyDescriber describer = new TopologyDescriber() {
            @Override public List<String> subtopologies() { return subtopologies; }
            @Override public int maxNumInputPartitions(String subtopology) { return counts.get(subtopology); }
            @Override public boolean isStateful(String subtopology) { return stateful.contains(subtopology); }
        };
        Map<String, String> configs = Map.of("num.standby.replicas", words[0]);
        Map<String, MemberAssignment> result =
            new StickyTaskAssignor().assign(new GroupSpecImpl(members, configs), describer).members();
        Map<String, String> lines = new TreeMap<>();
        result.forEach((member, assigned) ->
            lines.put(member, member + "=" + text(assigned.activeTasks()) + "/" + text(assigned.standbyTasks())));
        return String.join(" ", lines.values());
    }

    private static Map<String, Set<Integer>> tasks(String text) {
        Map<String, Set<Integer>> found = new HashMap<>();
        if (!text.equals("-"))
            for (String item : text.split(",")) {
                String[] parts = item.split(":");
                found.computeIfAbsent(parts[0], __ -> new HashSet<>()).add(Integer.parseInt(parts[1]));
            }
        return found;
    }

    private static String text(Map<String, Set<Integer>> tasks) {
        Set<String> items = new TreeSet<>();
        tasks.forEach((subtopology, partitions) -> partitions.forEach(p -> items.add(subtopology + ":" + p)));
        return String.join(",", items);
    }
}
