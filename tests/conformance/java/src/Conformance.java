import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Runs checks of the Java clients against a broker: {@code Conformance BOOTSTRAP WORK [CHECK...]}.
 *
 * <p>A check is a public static method with one {@link Cluster} parameter; it fails by an exception. One line per check
 * goes to standard output: {@code pass|fail <tab> Class.method <tab> seconds <tab> reason}. The process ends itself.
 */
public final class Conformance {
    static final List<Class<?>> CLASSES = List.of(
            AdminChecks.class, GroupChecks.class, ProducerChecks.class, ConsumerChecks.class, TransactionChecks.class,
            StreamsChecks.class, SecurityChecks.class);
    static final int AT_ONCE = 4;
    static final long LIMIT_S = 150;

    public static void main(String[] args) throws Exception {
        List<String> wanted = Arrays.asList(args).subList(2, args.length);
        ExecutorService pool = Executors.newFixedThreadPool(AT_ONCE);
        List<String> names = new ArrayList<>();
        List<Future<?>> running = new ArrayList<>();
        for (Method check : checks()) {
            String name = check.getDeclaringClass().getSimpleName() + "." + check.getName();
            if (wanted.isEmpty() || wanted.contains(name)) {
                names.add(name);
                running.add(pool.submit(() -> report(name, check, new Cluster(args[0], args[1]))));
            }
        }
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(LIMIT_S * (1 + names.size() / AT_ONCE));
        for (Future<?> one : running) {
            try {
                one.get(Math.max(0, deadline - System.nanoTime()), TimeUnit.NANOSECONDS);
            } catch (TimeoutException late) {
                System.err.println("not all checks ended in time");
                break;
            }
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static List<Method> checks() {
        List<Method> found = new ArrayList<>();
        for (Class<?> type : CLASSES) {
            for (Method method : type.getDeclaredMethods()) {
                boolean takesCluster = Arrays.equals(method.getParameterTypes(), new Class<?>[] {Cluster.class});
                if (Modifier.isPublic(method.getModifiers()) && takesCluster) {
                    found.add(method);
                }
            }
        }
        return found;
    }

    private static void report(String name, Method check, Cluster cluster) {
        long start = System.nanoTime();
        String state = "pass";
        String reason = "";
        try (cluster) {
            check.invoke(null, cluster);
        } catch (InvocationTargetException thrown) {
            state = "fail";
            reason = thrown.getCause().toString();
            thrown.getCause().printStackTrace();
        } catch (Throwable thrown) {
            state = "fail";
            reason = thrown.toString();
            thrown.printStackTrace();
        }
        double seconds = (System.nanoTime() - start) / 1e9;
        String line = String.format("%s\t%s\t%.2f\t%s", state, name, seconds, reason.replaceAll("\\s+", " "));
        synchronized (System.out) {
            System.out.println(line);
            System.out.flush();
        }
    }
}
