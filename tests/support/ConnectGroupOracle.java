import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.Collection;
import java.util.HexFormat;
import java.util.stream.Collectors;
import org.apache.kafka.connect.runtime.distributed.ConnectProtocol;
import org.apache.kafka.connect.runtime.distributed.ExtendedAssignment;
import org.apache.kafka.connect.runtime.distributed.ExtendedWorkerState;
import org.apache.kafka.connect.runtime.distributed.IncrementalCooperativeConnectProtocol;

/**
 * Connect's own codecs for what workers say in JoinGroup and SyncGroup: a message a line on standard input, as
 * `metadata|assignment version hex`; on standard output its fields, separated by blanks, and last the bytes that Java makes
 * of them under that version. Lists are joined by commas; - is null or empty.
 */
public final class ConnectGroupOracle {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            int version = Integer.parseInt(words[1]);
            ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(words[2]));
            System.out.println(words[0].equals("metadata") ? metadata(version, bytes) : assignment(version, bytes));
        }
    }

    private static String metadata(int version, ByteBuffer bytes) {
        ExtendedWorkerState state = IncrementalCooperativeConnectProtocol.deserializeMetadata(bytes);
        ByteBuffer again = version == 0
            ? ConnectProtocol.serializeMetadata(state)
            : IncrementalCooperativeConnectProtocol.serializeMetadata(state, version == 2);
        return state.url() + " " + state.offset() + " " + fields(state.assignment()) + " " + hex(again);
    }

    private static String assignment(int version, ByteBuffer bytes) {
        ExtendedAssignment found = IncrementalCooperativeConnectProtocol.deserializeAssignment(bytes);
        ByteBuffer again = version == 0
            ? ConnectProtocol.serializeAssignment(found)
            : IncrementalCooperativeConnectProtocol.serializeAssignment(found, version == 2);
        return fields(found) + " " + hex(again);
    }

    private static String fields(ExtendedAssignment found) {
        return String.join(" ", String.valueOf(found.version()), String.valueOf(found.error()),
            found.leader() == null ? "-" : found.leader(), found.leaderUrl() == null ? "-" : found.leaderUrl(),
            String.valueOf(found.offset()), list(found.connectors()), list(found.tasks()),
            list(found.revokedConnectors()), list(found.revokedTasks()), String.valueOf(found.delay()));
    }

    private static String list(Collection<?> items) {
        if (items == null || items.isEmpty()) return "-";
        return items.stream().map(String::valueOf).sorted().collect(Collectors.joining(","));
    }

    private static String hex(ByteBuffer bytes) {
        byte[] found = new byte[bytes.remaining()];
        bytes.get(found);
        return HexFormat.of().formatHex(found);
    }
}
