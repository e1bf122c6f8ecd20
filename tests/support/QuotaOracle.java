import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;

/**
 * Feeds Kafka's Rate and TokenBucket. A line "new COUNT LENGTH_MS BOUND" begins anew; "NOW AMOUNT" records the amount (0: nothing is
 * recorded), and answers "rate window tokens".
 */
public class QuotaOracle {
    public static void main(String[] args) throws Exception {
        MetricConfig config = null;
        Rate rate = null;
        TokenBucket bucket = null;
        var in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("new")) {
                config = new MetricConfig().samples(Integer.parseInt(words[1]))
                        .timeWindow(Long.parseLong(words[2]), TimeUnit.MILLISECONDS)
                        .quota(new Quota(Double.parseDouble(words[3]), true));
                rate = new Rate();
                bucket = new TokenBucket();
                continue;
            }
            long now = Long.parseLong(words[0]);
            double amount = Double.parseDouble(words[1]);
            if (amount != 0) {
                rate.record(config, amount, now);
                bucket.record(config, amount, now);
            }
            System.out.println(rate.measure(config, now) + " " + rate.windowSize(config, now) + " "
                    + bucket.measure(config, now));
        }
    }
}
