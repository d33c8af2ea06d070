"""Every key of Salt's settings that needs no thought of its own: its namesake here, or why there is none. Pure.

Names may be globs. What stands in no table is a key that this release knows nothing of, and is said to be so.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final

SAME: Final[dict[str, str]] = {
    "engines_dirs": "engines_dirs",
    "enable_legacy_startup_events": "enable_legacy_startup_events",
    "ext_pillar_first": "pillar/ext_first",
    "file_ignore_glob": "file_ignore_glob",
    "file_ignore_regex": "file_ignore_regex",
    "file_recv": "files/receive",
    "file_recv_max_size": "files/receive_megabytes",
    "keep_jobs": "jobs/keep_hours",
    "loop_interval": "loop_interval",
    "pillar_includes_override_sls": "pillar/includes_override_sls",
    "pillar_merge_lists": "pillar/merge_lists",
    "pillar_source_merging_strategy": "pillar/source_merging_strategy",
    "presence_events": "presence_events",
    "reactor": "reactor",
    "reactor_worker_hwm": "reactions/waiting",
    "reactor_worker_threads": "reactions/at_once",
    "timezone": "timezone",
}
"""Key of Salt -> setting here, with a slash before what is in a section. Values mean the same."""

UPSTREAM: Final = (
    "acceptance_wait_time",
    "acceptance_wait_time_max",
    "always_verify_signature",
    "auth_timeout",
    "auth_tries",
    "encryption_algorithm",
    "keysize",
    "master_alive_interval",
    "master_failback",
    "master_failback_interval",
    "master_finger",
    "master_sign_key_name",
    "random_reauth_delay",
    "request_channel_timeout",
    "signing_algorithm",
    "verify_master_pubkey_sign",
)
"""Keys that keep their name in the section ``upstream``."""

NO_MEANING: Final[dict[str, str]] = {
    "a gateway has folders and files of its own, and one state folder": """
        append_minionid_config_dirs cachedir conf_file config_dir default_include extension_modules
        key_logfile master_roots minion_id_caching permissive_pki_access pidfile pki_dir pki_index_file
        queue_dirs root_dir sock_dir sqlite_queue_dir syndic_dir syndic_log_file syndic_pidfile token_dir
        verify_env
    """,
    "it logs to stderr, which systemd keeps in the journal, in one form": """
        force_color log_datefmt* log_file log_fmt* log_granular_levels log_level_logfile log_rotate_* no_color
    """,
    "a gateway is one process, with bounds of its own (docs/configuration.md)": """
        *_niceness __cli cython_enable features hard_crash ipc_mode ipc_write_buffer key_cache
        master_stats* max_event_size max_open_files memcache_* minion_jid_queue_hwm minion_memory_*
        minion_restart_command modules_max_memory multiprocessing optimization_order process_count_max
        profiling_* pub_hwm publish_drain_timeout publish_timeout reactor_refresh_interval restart_on_error
        search serial sock_pool_size tcp_*_port tcp_master_* tcp_reconnect_backoff transport
        update_restart_services update_url worker_pools* worker_threads zmq_*
        keys.cache_driver saltpip_* use_os_truststore
        master_async_mworker master_mworker_* pub_server_write_queue_size
    """,
    "no minion connects to a gateway: its devices come over MQTT and SSH (docs/enrollment.md)": """
        allow_minion_key_revoke auth_events cluster_* con_cache detect_remote_minions discovery
        drop_messages_signature_fail dummy_pub enable_ssh_minions interface ipv6 key_pass
        master_pubkey_signature master_sign_pubkey master_use_pubkey_signature
        max_minions minimum_auth_version minion_data_cache* ping_on_rotate preserve_minion_cache publish_port
        publish_session publish_signing_algorithm remote_minions_port request_server_*
        require_minion_sign_messages ret_port rotate_aes_key sign_pub_messages signing_key_pass master_id
        auth_events_*
    """,
    "it is one gateway for all its devices, which need no process each": """
        add_proxymodule_to_opts delta_proxy_pool metaproxy multiprocessing_proxy parallel_startup
        proxy_always_alive proxy_deep_merge_pillar_in_opts proxy_keep_alive proxy_keep_alive_interval
        proxy_merge_grains_in_module proxy_merge_pillar_in_opts proxy_merge_pillar_in_opts_strategy
        proxy_mines_pillar proxymodule skip_connect_on_init
    """,
    "the link to a Salt master is Outstation's own, with its own times and tries (docs/salt.md)": """
        auth_mode auth_retries auth_safemode master_tries
        master_uri master_uri_format minion_sign_messages ping_interval pub_ret random_startup_delay recon_*
        rejected_retry request_channel_tries resolve_dns_fallback retry_dns* return_retry_*
        source_address source_interface_name source_publish_port source_ret_port tcp_authentication_retries
        tcp_keepalive* unique_jid use_master_when_local
        disable_aes_with_tls
    """,
    "every answer waits on the disk until a master has it, and goes once (docs/spool.md)": """
        beacons_before_connect cache_jobs cache_sreqs job_cache job_cache_store_endtime order_masters
        scheduler_before_connect syndic_event_forward_timeout syndic_failover syndic_forward_all_events
        syndic_jid_forward_cache_hwm syndic_mode syndic_retries syndic_wait
    """,
    "jobs end when their last device is done or silent for a known reason (docs/jobs.md)": """
        async cli_summary gather_job_timeout output output_file output_file_append outputter_dirs
        print_metadata quiet retcode_passthrough return_jid selected_output_option show_jid show_timeout
        state_output* state_verbose timeout
    """,
    "what the gateway keeps of files and pillar follows what it asks for": """
        archive_jobs autoload_dynamic_modules cache clean_dynamic_modules enable_zip_modules env_order
        event_match_type file_buffer_size file_client fileserver_interval fileserver_limit_traversal
        fileserver_verify_config hash_type http_* maintenance_interval minionfs_update_interval
        pillar_cache* pillar_opts pillar_safe_render_error pillar_version roots_update_interval
        salt_cp_chunk_size
    """,
    "grains are told by each device itself (docs/devices.md)": """
        enable_fqdns_grains enable_gpu_grains grains_cache* grains_deep_merge grains_run id_function
        minion_id_lowercase minion_id_remove_domain refresh_grains_cache skip_grains start_event_grains
    """,
    "it holds for salt-ssh, which is not needed here": """
        min_extra_mods regen_thin roster_* ssh_*
        thin_*
    """,
    "it is for Windows and for cloud machines": """
        cloud_* ipc_* providers snapper_* spm_* winrepo_*
    """,
}

NOT_CARRIED: Final[dict[str, str]] = {
    "who may do what is a policy here: write it as docs/operators.md says, and name it with policy:": """
        auth.ldap.* client_acl* django_auth_* eauth* external_auth keep_acl_in_token ldap.* netapi_* peer
        peer_run permissive_acl publisher_acl* rest_cherrypy rest_tornado rest_wsgi sudo_acl sudo_user
        token_expire*
        token_file username password
    """,
    "devices come in by a token, a list of keys or a window: docs/enrollment.md": """
        auto_accept autoreject_* autoreject_file autosign_* autosign_file open_mode
    """,
    "a gateway serves folders and git repositories that are on the machine: clone it, then file_roots: "
    "{base: [{git: PATH, ref: REF}]} (docs/files.md)": """
        azurefs_* fileserver_followsymlinks fileserver_ignoresymlinks fileserver_list_cache_time gitfs_*
        hgfs_* minionfs_* s3.* s3fs_* svnfs_*
    """,
    "pillar from elsewhere is pillar: {ext: …} with sql or http (docs/pillar.md), or stays on the Salt master": """
        ext_pillar git_pillar_* on_demand_ext_pillar pillar.* pillar_raise_on_missing
    """,
    "pillar is not decrypted here; keep it on the Salt master, or in the clear in a file of mode 0600": """
        decrypt_pillar* gpg_* gpg_keydir
        pillar_mask_output pillar
    """,
    "there is no state system on devices: call functions (docs/functions.md), or keep states for machines "
    "with a salt-minion": """
        backup_mode default_top disabled_requisites environment failhard global_state_conditions lock_saltenv
        master_tops* multifunc_ordered pillarenv* saltenv sls_list startup_states state_* test thorium*
        top_file top_file_merging_strategy whitelist_state_modules
    """,
    "returns go to the returners of docs/returners.md: name them with outstation run --return, or in the settings": """
        *_return_* alternative.* event_return* ext_job_cache job_cache_dir master_job_cache no_return_event
        return returner.* runner_returns
    """,
    "to tell events to another program take an engine: event_to_file, webhook_out, nats (docs/engines.md)": """
        fluent* logstash* sentry_handler
        metrics tracing
    """,
    "modules of your own are signed, and reach devices with saltutil.sync_all (docs/modules.md)": """
        *_blacklist *_whitelist beacons_dirs cli_dirs disable_grains disable_modules disable_returners
        executor_dirs executor_opts extmod_* grains_dirs module_dirs module_executors proxy_dirs render_dirs
        returner_dirs runner_dirs states_dirs utils_dirs wheel_dirs whitelist_modules
    """,
    "it was for one machine's minion; say it in the settings of its agent, or in a pillar": """
        enforce_mine_cache mine_enabled mine_return_job ssh_merge_pillar
    """,
    "a device is a target of its own here, and no resource of a minion": """
        resource_pillar_key resources resources_*
    """,
    "the mine has rules of its own, allow_tgt and mine.other_sites: docs/mine.md": """
        mine_get_allow
    """,
    "what a template reads is its pillar and its grains: docs/pillar.md": """
        pass_* range_server renderer* sdb* vault*
    """,
    "templates have Jinja's own settings here: look at those that need others, with outstation pillar show or "
    "outstation reactor test": """
        jinja_*
    """,
    "the agent and the gateway go through no proxy": """
        no_proxy proxy_host proxy_password proxy_port proxy_username
    """,
    "TLS is between an agent and its broker (broker.tls_port); the link upward is encrypted by itself": """
        ssl*
    """,
    "what every call of a device may run is said where the site is accepted, --grant (docs/trust.md)": """
        cmd_blacklist_glob cmd_safe cmd_whitelist_glob minion_blackout*
    """,
    "the gateway runs as the user of its unit, and an agent as root": """
        syndic_user umask user
    """,
    "FIPS mode is the machine's; whether a Salt master above is in it, its keys say": """
        fips_mode
    """,
}


UNKNOWN: Final = "this is not known of any release of Salt; look at what on this box reads it"
OF_MODULE: Final = (
    "the module {} of Salt or of this box reads it: docs/returners.md has the returners of this release, "
    "docs/pillar.md the sources of pillar"
)


def _table(rows: dict[str, str]) -> tuple[dict[str, str], list[tuple[str, str]]]:
    exact: dict[str, str] = {}
    globs: list[tuple[str, str]] = []
    for why, names in rows.items():
        for name in names.split():
            if "*" in name:
                globs.append((name, why))
            else:
                exact.setdefault(name, why)
    return exact, globs


_none, _none_globs = _table(NO_MEANING)
_left, _left_globs = _table(NOT_CARRIED)


def no_meaning(key: str) -> str | None:
    """Why a key is of no meaning here; None where it is not so."""
    return _none.get(key) if key in _none or key in _left else _glob(key, _none_globs)


def not_carried(key: str) -> str:
    """Why a key has no counterpart, and what to do."""
    found = _left.get(key) or _glob(key, _left_globs)
    module, dot, _ = key.partition(".")
    return found or (OF_MODULE.format(module[:64]) if module and dot else UNKNOWN)


def _glob(key: str, globs: list[tuple[str, str]]) -> str | None:
    return next((why for glob, why in globs if fnmatchcase(key, glob)), None)
