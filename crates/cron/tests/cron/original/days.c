/* Prints what Debian's cron does with patterns: on which days, and whether it takes them for
 * intervals. Its own code parses the patterns (`load_entry`) and matches the days (`find_jobs`).
 * `run.sh` builds this file inside the source of cron. */

#define main cron_main
#include "cron.c"
#undef main

static int found;

/* `find_jobs` calls these. */
void job_add(entry *e, user *u) { (void)e; (void)u; found = 1; }
int job_runqueue(void) { return 0; }

static const char *days[] = {"*", "*/2", "*/1", "*/10", "13", "1,15", "1-7", "1-31",
	"1-31/2", "*/2,14", "*/9,1-3", "5,*/9", NULL};
static const char *weekdays[] = {"*", "MON", "FRI", "*/2", "*/1", "*/3", "1-5", "0-6", "0,7",
	"*/4,FRI", "FRI,*/4", NULL};
static const char *times[] = {"30 2", "0,20,40 2", "*/20 2", "* 2", "*/30,10 2", "10,*/30 2",
	"0 */2", "15 */2", "0 2,*/8", "0 */8,2", "0 1-2", "0 0-2/2", "0 2,14", NULL};

/* 2026-01-31 */
#define FIRST 20484
#define COUNT 62

static entry *parse(const char *pattern)
{
	static struct passwd owner;
	static char *no_env[] = {NULL};
	char line[200];
	owner.pw_name = "nobody";
	owner.pw_dir = "/";
	snprintf(line, sizeof line, "%s true\n", pattern);
	FILE *file = fmemopen(line, strlen(line), "r");
	Set_LineNum(1)
	return load_entry(file, NULL, &owner, no_env);
}

static int is_due(entry *e, long minute, int wild, int fixed)
{
	static user owner;
	static cron_db db;
	owner.crontab = e;
	db.head = &owner;
	found = 0;
	find_jobs(minute, &db, wild, fixed);
	return found;
}

int main(void)
{
	char pattern[100];
	for (int d = 0; days[d]; d++)
		for (int w = 0; weekdays[w]; w++) {
			snprintf(pattern, sizeof pattern, "0 0 %s * %s", days[d], weekdays[w]);
			entry *e = parse(pattern);
			if (!e)
				continue;
			printf("%-22s ", pattern);
			for (long day = FIRST; day < FIRST + COUNT; day++)
				putchar(is_due(e, day * 24 * 60, TRUE, TRUE) ? 'x' : '.');
			putchar('\n');
		}
	for (int t = 0; times[t]; t++) {
		snprintf(pattern, sizeof pattern, "%s * * *", times[t]);
		entry *e = parse(pattern);
		int wild = 0;
		for (long minute = 0; minute < 24 * 60; minute++)
			wild |= is_due(e, minute, TRUE, FALSE);
		printf("%-22s %s\n", pattern, wild ? "interval" : "times");
	}
	return 0;
}
